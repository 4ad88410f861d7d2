// A netlist behind its USB of full speed, entered at byte streams: what a computer's host controller does, and the part
// of its driver that finds the device. Source: USB 2.0, chapters 7.1, 8.3 to 8.6, 9.4.
module top(
    input clk, input rst,
    input [7:0] i__payload, input i__valid, output i__ready,
    output reg [7:0] o__payload, output reg o__valid, input o__ready
);
    localparam CLOCK_HZ = 48000000, RATE = 12000000;
    localparam DIVISOR = CLOCK_HZ / RATE; // cycles of a bit
    localparam [7:0] OUT = 8'he1, IN = 8'h69, SETUP = 8'h2d, DATA0 = 8'hc3, DATA1 = 8'h4b, ACK = 8'hd2;
    localparam [6:0] ADDRESS = 21, PACKET_BYTES = 64;
    localparam [3:0] DATA_ENDPOINT = 4;
    // An answer begins within 18 bits, and its first eight are a pattern.
    localparam [7:0] TURNAROUND = 3 * DIVISOR, ANSWER = (18 + 8 + 1) * DIVISOR;
    // A packet counts as arrived when its end begins, which takes three more bits.
    localparam [7:0] ENDED = TURNAROUND + 3 * DIVISOR;
    localparam [15:0] RESET_CYCLES = 50 * (CLOCK_HZ / 1000000);
    localparam [1:0] J = 2'b01, SE0 = 2'b00; // levels {D-, D+}
    reg start = 0, reset_bus = 0;
    reg [6:0] start_length = 0; // of the packet that is to be sent

    // While nobody drives the wires, the pull-up holds J.
    reg [1:0] driven = J;
    wire [1:0] seen;
    wire connected;
    netlist netlist(
        .clk(clk), .usb_d_p(driven[0]), .usb_d_n(driven[1]),
        .usb_d_p_out(seen[0]), .usb_d_n_out(seen[1]), .usb_pullup(connected)
    );

    function automatic [4:0] crc5(input [10:0] bits);
        integer k;
        crc5 = 5'h1f;
        for (k = 0; k < 11; k = k + 1) crc5 = (crc5 >> 1) ^ (crc5[0] ^ bits[k] ? 5'h14 : 5'h00);
        crc5 = ~crc5;
    endfunction
    function automatic [15:0] crc16(input [15:0] previous, input [7:0] bits);
        integer k;
        crc16 = previous;
        for (k = 0; k < 8; k = k + 1) crc16 = (crc16 >> 1) ^ (crc16[0] ^ bits[k] ? 16'ha001 : 16'h0000);
    endfunction

    // Sender: the pattern in front and the bytes, a zero behind six ones, both wires low for two bits, and J.
    reg [7:0] packet [0:66];
    reg [6:0] length = 0, at = 0; // bytes of the packet; the byte that is sent, the pattern being the first
    reg [2:0] place = 0, ones = 0, ending = 0;
    reg [7:0] tick = 0;
    reg sending = 0;
    wire next_bit = (at == 0 ? 8'h80 : packet[at - 1]) >> place & 1;
    always @(posedge clk)
        if (start) begin
            {sending, at, place, ones, ending, tick} <= {1'b1, 7'd0, 3'd0, 3'd0, 3'd0, 8'd0};
            length <= start_length;
        end else if (sending) begin
            tick <= tick == DIVISOR - 1 ? 0 : tick + 1;
            if (tick == 0) begin
                if (ones == 6) {driven, ones} <= {~driven, 3'd0};
                else if (at > length) begin
                    ending <= ending + 1;
                    driven <= ending < 2 ? SE0 : J;
                    if (ending == 3) sending <= 0;
                end else begin
                    if (!next_bit) driven <= ~driven;
                    ones <= next_bit ? ones + 1 : 0;
                    place <= place + 1;
                    if (place == 7) at <= at + 1;
                end
            end
        end else driven <= reset_bus ? SE0 : J;

    // Receiver: each bit is sampled two cycles behind the last change of the wires.
    reg [1:0] previous = J, last = J;
    reg [7:0] phase = 0, history = 8'hff, received [0:66];
    reg [6:0] count = 0; // bytes of the packet so far
    reg [2:0] run = 0, filled = 0;
    reg receiving = 0, arrived = 0;
    reg [15:0] check = 0; // CRC of the bytes behind the kind of the packet
    wire bit_seen = seen == last;
    wire [7:0] shifted = {bit_seen, history[7:1]};
    always @(posedge clk) begin
        previous <= seen;
        phase <= seen != previous || phase == DIVISOR - 1 ? 0 : phase + 1;
        arrived <= 0;
        if (start || sending) {receiving, history, last, count} <= {1'b0, 8'hff, J, 7'd0};
        else if (phase == 1 && seen == previous) begin
            last <= seen;
            if (seen == SE0) begin
                arrived <= receiving;
                receiving <= 0;
            end else if (!receiving) begin
                history <= shifted;
                if (shifted == 8'h80) {receiving, run, filled, count, check} <= {1'b1, 3'd1, 3'd0, 7'd0, 16'hffff};
            end else begin
                run <= bit_seen ? run + 1 : 0;
                if (run != 6) begin
                    history <= shifted;
                    filled <= filled + 1;
                    if (filled == 7 && count < 67) begin
                        received[count] <= shifted;
                        if (count != 0) check <= crc16(check, shifted);
                        count <= count + 1;
                    end
                end
            end
        end
    end
    wire [6:0] payload_bytes = count - 3;
    wire is_data = (received[0] == DATA0 || received[0] == DATA1) && count >= 3 && check == 16'hb001;

    // Transactions: token, packet to the device or from it, answer.
    localparam [2:0] WAIT = 0, PREPARE = 1, TOKEN = 2, DATA = 3, ANSWERED = 4, CONFIRM = 5, PUSH = 6;
    reg [2:0] step = WAIT;
    reg [7:0] pause = 0, kind = 0;
    reg [3:0] endpoint = 0;
    reg [6:0] address = 0, bytes = 0, pushed = 0;
    reg toggle = 0, taken = 0, came = 0;
    reg [7:0] payload [0:63];
    reg [15:0] sum;
    integer n;

    // Order of what is done: reset, requests, then bytes of both directions in turns.
    localparam [3:0] PLUG = 0, IDLE = 1, RESET = 2, SETTLE = 3, ASK = 4, REPLY = 5, STATUS = 6, GIVE = 7, TAKE = 8;
    reg [3:0] state = PLUG;
    reg [15:0] left = 0;
    reg [1:0] request = 0;
    reg o_toggle = 0, i_toggle = 0;
    // The descriptor of the device is read, address and configuration are set.
    wire [63:0] asked = request == 0 ? 64'h0012_0000_0100_0680
        : request == 1 ? 64'h0500 | 64'd0 + ADDRESS << 16 : 64'h0000_0000_0001_0900;
    reg [7:0] waiting [0:63];
    reg [6:0] waits = 0;
    reg locked = 0; // a packet that was sent stays as it is until it is taken
    assign i__ready = state >= GIVE && !locked && waits < PACKET_BYTES;
    initial begin
        o__valid = 0;
        o__payload = 0;
    end
    always @(posedge clk) begin
        start <= 0;
        if (o__ready) o__valid <= 0;
        if (i__valid && i__ready) begin
            waiting[waits[5:0]] <= i__payload;
            waits <= waits + 1;
        end
        if (left != 0) left <= left - 1;
        if (pause != 0) pause <= pause - 1;
        case (step)
            WAIT: if (left == 0) case (state)
                PLUG: if (connected) {state, left} <= {IDLE, RESET_CYCLES};
                IDLE: {state, left, reset_bus} <= {RESET, RESET_CYCLES, 1'b1};
                RESET: {state, left, reset_bus} <= {SETTLE, RESET_CYCLES, 1'b0};
                SETTLE: state <= ASK;
                ASK: begin
                    for (n = 0; n < 8; n = n + 1) payload[n] <= asked[8 * n +: 8];
                    {kind, endpoint, toggle, bytes, step} <= {SETUP, 4'd0, 1'b0, 7'd8, PREPARE};
                end
                REPLY: {kind, endpoint, toggle, step} <= {IN, 4'd0, 1'b1, PREPARE};
                STATUS: {kind, endpoint, toggle, bytes, step} <=
                    {request == 0 ? OUT : IN, 4'd0, 1'b1, 7'd0, PREPARE};
                GIVE: if (waits != 0 && (locked || !i__valid || waits == PACKET_BYTES)) begin
                    locked <= 1;
                    for (n = 0; n < 64; n = n + 1) payload[n] <= waiting[n];
                    {kind, endpoint, toggle, bytes, step} <=
                        {OUT, DATA_ENDPOINT, o_toggle, waits, PREPARE};
                end else state <= TAKE;
                default: {kind, endpoint, toggle, step} <=
                    {IN, DATA_ENDPOINT, i_toggle, PREPARE};
            endcase
            PREPARE: if (pause == 0) begin
                packet[0] <= kind;
                {packet[2], packet[1]} <= {crc5({endpoint, address}), endpoint, address};
                {start, start_length, step, taken, came} <= {1'b1, 7'd3, TOKEN, 2'b00};
                pause <= TURNAROUND;
            end
            TOKEN: if (!start && !sending) begin
                if (kind == IN) {step, pause} <= {ANSWERED, ANSWER};
                else if (pause == 0) begin
                    sum = 16'hffff;
                    for (n = 0; n < 64; n = n + 1)
                        if (n < bytes) begin
                            packet[n + 1] <= payload[n];
                            sum = crc16(sum, payload[n]);
                        end
                    packet[0] <= toggle ? DATA1 : DATA0;
                    packet[bytes + 1] <= ~sum[7:0];
                    packet[bytes + 2] <= ~sum[15:8];
                    {start, start_length, step, pause} <= {1'b1, bytes + 7'd3, DATA, 8'd0};
                end
            end else pause <= TURNAROUND;
            DATA: if (!start && !sending) {step, pause} <= {ANSWERED, ANSWER};
            // A packet that began in time may be longer than the wait for it.
            ANSWERED: if (arrived) begin
                taken <= received[0] == ACK && count == 1;
                pushed <= 0;
                pause <= ENDED;
                step <= kind == IN && is_data ? CONFIRM : PUSH;
            end else if (pause == 0 && !receiving) {step, pause} <= {PUSH, TURNAROUND};
            CONFIRM: if (pause == 0) begin
                packet[0] <= ACK;
                {start, start_length, step} <= {1'b1, 7'd1, PUSH};
                // One that came before is confirmed as well, and left out.
                came <= (received[0] == DATA1) == toggle;
                bytes <= payload_bytes;
            end
            default: if (!start && !sending) begin
                if (state == TAKE && came && pushed < bytes) begin
                    if (o__ready || !o__valid) begin
                        {o__valid, o__payload} <= {1'b1, received[pushed + 1]};
                        pushed <= pushed + 1;
                    end
                end else begin
                    step <= WAIT;
                    pause <= ENDED;
                    case (state)
                        ASK: if (taken) state <= request == 0 ? REPLY : STATUS;
                        // A descriptor of 18 bytes; without it no computer would go on.
                        REPLY: if (came) state <= bytes == 18 && received[1] == 18 && received[2] == 1 ? STATUS : PLUG;
                        STATUS: if (came || taken) begin
                            if (request == 1) address <= ADDRESS;
                            request <= request + 1;
                            state <= request == 2 ? GIVE : ASK;
                            left <= 100;
                        end
                        GIVE: begin
                            if (taken) {locked, waits, o_toggle} <= {1'b0, 7'd0, ~o_toggle};
                            state <= TAKE;
                        end
                        default: begin
                            if (came) i_toggle <= ~i_toggle;
                            state <= GIVE;
                        end
                    endcase
                end
            end
        endcase
    end
endmodule
