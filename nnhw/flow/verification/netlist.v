// A netlist behind its serial line, entered at byte streams: what a computer's serial port does.
module top(
    input clk, input rst,
    input [7:0] i__payload, input i__valid, output i__ready,
    output reg [7:0] o__payload, output reg o__valid, input o__ready
);
    localparam CLOCK_HZ = 48000000, RATE = 3000000;
    localparam DIVISOR = (CLOCK_HZ + RATE / 2) / RATE; // cycles of a bit
    wire rx, tx;
    netlist netlist(.clk(clk), .rx(rx), .tx(tx));

    // Start bit, eight data bits from the lowest, stop bit.
    reg [9:0] sending = 10'h3ff;
    reg [15:0] i_wait = 0;
    reg [3:0] i_left = 0;
    assign rx = sending[0];
    assign i__ready = i_left == 0;
    always @(posedge clk)
        if (i_left == 0) begin
            if (i__valid) begin
                sending <= {1'b1, i__payload, 1'b0};
                i_left <= 10;
                i_wait <= DIVISOR - 1;
            end
        end else if (i_wait != 0) i_wait <= i_wait - 1;
        else begin
            sending <= {1'b1, sending[9:1]};
            i_left <= i_left - 1;
            i_wait <= DIVISOR - 1;
        end

    // Sampled in the middle of each bit; a byte without its stop bit is none.
    reg [8:0] taken = 0;
    reg [15:0] o_wait = 0;
    reg [3:0] o_left = 0;
    initial begin
        o__valid = 0;
        o__payload = 0;
    end
    always @(posedge clk) begin
        if (o__ready) o__valid <= 0;
        if (o_left == 0) begin
            if (!tx) begin
                o_left <= 10;
                o_wait <= DIVISOR / 2;
            end
        end else if (o_wait != 0) o_wait <= o_wait - 1;
        else begin
            taken <= {tx, taken[8:1]};
            o_left <= o_left - 1;
            o_wait <= DIVISOR - 1;
            if (o_left == 1) begin
                o__payload <= taken[8:1];
                o__valid <= tx;
            end
        end
    end
endmodule
