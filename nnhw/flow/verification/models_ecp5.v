// Models of ECP5 cells that yosys has none of, as far as nnhw uses them.
// Source: Lattice FPGA-TN-02204 (memory), FPGA-TN-02205 (DSP blocks).

// A block RAM of 1,024 x 18 bits with two ports. Words of 9 bits are halves; of 4, 2 and 1 bits, parts of the lower 8
// bits of a half. Words of 36 bits are two rows: port A writes them, with their upper row at DIB, and port B reads them,
// with their lower row at DOA.
module DP16KD(
    input DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9,
    input DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0,
    input ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0,
    input CEA, OCEA, CLKA, WEA, RSTA, CSA2, CSA1, CSA0,
    output DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9,
    output DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0,
    input DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9,
    input DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0,
    input ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0,
    input CEB, OCEB, CLKB, WEB, RSTB, CSB2, CSB1, CSB0,
    output DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9,
    output DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0
);
    parameter DATA_WIDTH_A = 18, DATA_WIDTH_B = 18;
    parameter REGMODE_A = "NOREG", REGMODE_B = "NOREG";
    parameter RESETMODE = "SYNC", ASYNC_RESET_RELEASE = "SYNC";
    parameter CSDECODE_A = "0b000", CSDECODE_B = "0b000";
    parameter WRITEMODE_A = "NORMAL", WRITEMODE_B = "NORMAL";
    parameter CLKAMUX = "CLKA", CLKBMUX = "CLKB", GSR = "AUTO";
    parameter [319:0] INITVAL_00 = 0, INITVAL_01 = 0, INITVAL_02 = 0, INITVAL_03 = 0;
    parameter [319:0] INITVAL_04 = 0, INITVAL_05 = 0, INITVAL_06 = 0, INITVAL_07 = 0;
    parameter [319:0] INITVAL_08 = 0, INITVAL_09 = 0, INITVAL_0A = 0, INITVAL_0B = 0;
    parameter [319:0] INITVAL_0C = 0, INITVAL_0D = 0, INITVAL_0E = 0, INITVAL_0F = 0;
    parameter [319:0] INITVAL_10 = 0, INITVAL_11 = 0, INITVAL_12 = 0, INITVAL_13 = 0;
    parameter [319:0] INITVAL_14 = 0, INITVAL_15 = 0, INITVAL_16 = 0, INITVAL_17 = 0;
    parameter [319:0] INITVAL_18 = 0, INITVAL_19 = 0, INITVAL_1A = 0, INITVAL_1B = 0;
    parameter [319:0] INITVAL_1C = 0, INITVAL_1D = 0, INITVAL_1E = 0, INITVAL_1F = 0;
    parameter [319:0] INITVAL_20 = 0, INITVAL_21 = 0, INITVAL_22 = 0, INITVAL_23 = 0;
    parameter [319:0] INITVAL_24 = 0, INITVAL_25 = 0, INITVAL_26 = 0, INITVAL_27 = 0;
    parameter [319:0] INITVAL_28 = 0, INITVAL_29 = 0, INITVAL_2A = 0, INITVAL_2B = 0;
    parameter [319:0] INITVAL_2C = 0, INITVAL_2D = 0, INITVAL_2E = 0, INITVAL_2F = 0;
    parameter [319:0] INITVAL_30 = 0, INITVAL_31 = 0, INITVAL_32 = 0, INITVAL_33 = 0;
    parameter [319:0] INITVAL_34 = 0, INITVAL_35 = 0, INITVAL_36 = 0, INITVAL_37 = 0;
    parameter [319:0] INITVAL_38 = 0, INITVAL_39 = 0, INITVAL_3A = 0, INITVAL_3B = 0;
    parameter [319:0] INITVAL_3C = 0, INITVAL_3D = 0, INITVAL_3E = 0, INITVAL_3F = 0;

    reg [17:0] memory [0:1023];
    task fill(input integer first, input [319:0] words);
        integer word;
        for (word = 0; word < 16; word = word + 1) memory[16 * first + word] = words[20 * word +: 18];
    endtask
    initial begin
        fill(0, INITVAL_00); fill(1, INITVAL_01); fill(2, INITVAL_02); fill(3, INITVAL_03);
        fill(4, INITVAL_04); fill(5, INITVAL_05); fill(6, INITVAL_06); fill(7, INITVAL_07);
        fill(8, INITVAL_08); fill(9, INITVAL_09); fill(10, INITVAL_0A); fill(11, INITVAL_0B);
        fill(12, INITVAL_0C); fill(13, INITVAL_0D); fill(14, INITVAL_0E); fill(15, INITVAL_0F);
        fill(16, INITVAL_10); fill(17, INITVAL_11); fill(18, INITVAL_12); fill(19, INITVAL_13);
        fill(20, INITVAL_14); fill(21, INITVAL_15); fill(22, INITVAL_16); fill(23, INITVAL_17);
        fill(24, INITVAL_18); fill(25, INITVAL_19); fill(26, INITVAL_1A); fill(27, INITVAL_1B);
        fill(28, INITVAL_1C); fill(29, INITVAL_1D); fill(30, INITVAL_1E); fill(31, INITVAL_1F);
        fill(32, INITVAL_20); fill(33, INITVAL_21); fill(34, INITVAL_22); fill(35, INITVAL_23);
        fill(36, INITVAL_24); fill(37, INITVAL_25); fill(38, INITVAL_26); fill(39, INITVAL_27);
        fill(40, INITVAL_28); fill(41, INITVAL_29); fill(42, INITVAL_2A); fill(43, INITVAL_2B);
        fill(44, INITVAL_2C); fill(45, INITVAL_2D); fill(46, INITVAL_2E); fill(47, INITVAL_2F);
        fill(48, INITVAL_30); fill(49, INITVAL_31); fill(50, INITVAL_32); fill(51, INITVAL_33);
        fill(52, INITVAL_34); fill(53, INITVAL_35); fill(54, INITVAL_36); fill(55, INITVAL_37);
        fill(56, INITVAL_38); fill(57, INITVAL_39); fill(58, INITVAL_3A); fill(59, INITVAL_3B);
        fill(60, INITVAL_3C); fill(61, INITVAL_3D); fill(62, INITVAL_3E); fill(63, INITVAL_3F);
    end

    // Where a word of a port lies: its first bit in the 18 of a row, and its mask.
    function [4:0] offset(input integer width, input [13:0] address);
        case (width)
            18: offset = 0;
            9: offset = address[3] ? 9 : 0;
            default: offset = (address[3] ? 9 : 0) + (address[2:0] & ~(width - 1));
        endcase
    endfunction
    function [17:0] mask(input integer width, input [13:0] address);
        if (width == 18) mask = {{9{address[1]}}, {9{address[0]}}};
        else mask = ((18'd1 << width) - 18'd1) << offset(width, address);
    endfunction

    function [17:0] merged(input [17:0] old, input [17:0] word, input [17:0] mask);
        merged = (old & ~mask) | (word & mask);
    endfunction

    wire [13:0] address_a = {ADA13, ADA12, ADA11, ADA10, ADA9, ADA8, ADA7, ADA6, ADA5, ADA4, ADA3, ADA2, ADA1, ADA0};
    wire [13:0] address_b = {ADB13, ADB12, ADB11, ADB10, ADB9, ADB8, ADB7, ADB6, ADB5, ADB4, ADB3, ADB2, ADB1, ADB0};
    wire [17:0] i_a = {DIA17, DIA16, DIA15, DIA14, DIA13, DIA12, DIA11, DIA10, DIA9,
                       DIA8, DIA7, DIA6, DIA5, DIA4, DIA3, DIA2, DIA1, DIA0};
    wire [17:0] i_b = {DIB17, DIB16, DIB15, DIB14, DIB13, DIB12, DIB11, DIB10, DIB9,
                       DIB8, DIB7, DIB6, DIB5, DIB4, DIB3, DIB2, DIB1, DIB0};
    reg [17:0] o_a = 0, o_b = 0, held_a = 0, held_b = 0;
    assign {DOA17, DOA16, DOA15, DOA14, DOA13, DOA12, DOA11, DOA10, DOA9,
            DOA8, DOA7, DOA6, DOA5, DOA4, DOA3, DOA2, DOA1, DOA0} = REGMODE_A == "OUTREG" ? held_a : o_a;
    assign {DOB17, DOB16, DOB15, DOB14, DOB13, DOB12, DOB11, DOB10, DOB9,
            DOB8, DOB7, DOB6, DOB5, DOB4, DOB3, DOB2, DOB1, DOB0} = REGMODE_B == "OUTREG" ? held_b : o_b;

    wire [17:0] mask_a = mask(DATA_WIDTH_A, address_a), mask_b = mask(DATA_WIDTH_B, address_b);
    wire [4:0] offset_a = offset(DATA_WIDTH_A, address_a), offset_b = offset(DATA_WIDTH_B, address_b);
    wire [9:0] row_a = address_a[13:4], row_b = address_b[13:4];
    wire on_a = CEA & ~CSA0 & ~CSA1 & ~CSA2, on_b = CEB & ~CSB0 & ~CSB1 & ~CSB2;
    wire wide_a = DATA_WIDTH_A == 36, wide_b = DATA_WIDTH_B == 36;
    // nnhw's memories are never read where they are written in the same cycle.
    always @(posedge CLKA) if (on_a) begin
        if (WEA & wide_a) begin
            memory[{row_a[9:1], 1'b0}] <= merged(memory[{row_a[9:1], 1'b0}], i_a, {{9{ADA1}}, {9{ADA0}}});
            memory[{row_a[9:1], 1'b1}] <= merged(memory[{row_a[9:1], 1'b1}], i_b, {{9{ADA3}}, {9{ADA2}}});
        end else if (WEA) memory[row_a] <= merged(memory[row_a], i_a << offset_a, mask_a);
        else if (!wide_b) o_a <= RSTA ? 0 : memory[row_a] >> offset_a;
    end
    always @(posedge CLKB) if (on_b) begin
        if (wide_b) begin
            o_a <= RSTB ? 0 : memory[{row_b[9:1], 1'b0}];
            o_b <= RSTB ? 0 : memory[{row_b[9:1], 1'b1}];
        end else if (WEB) memory[row_b] <= merged(memory[row_b], i_b << offset_b, mask_b);
        else o_b <= RSTB ? 0 : memory[row_b] >> offset_b;
    end
    always @(posedge CLKA) if (OCEA & !wide_b) held_a <= RSTA ? 0 : o_a;
    always @(posedge CLKB) if (OCEB) begin
        if (wide_b & OCEA) held_a <= RSTB ? 0 : o_a;
        held_b <= RSTB ? 0 : o_b;
    end

    initial if (CLKAMUX != "CLKA" || CLKBMUX != "CLKB") begin
        $display("DP16KD: inverted clocks have no model");
        $stop;
    end
endmodule

// A product of two numbers of 18 bits, with registers in front of it and behind it; without the cascade.
module MULT18X18D(
    input A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0,
    input B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0,
    input C17, C16, C15, C14, C13, C12, C11, C10, C9, C8, C7, C6, C5, C4, C3, C2, C1, C0,
    input SIGNEDA, SIGNEDB, SOURCEA, SOURCEB,
    input CLK3, CLK2, CLK1, CLK0, CE3, CE2, CE1, CE0, RST3, RST2, RST1, RST0,
    input SRIA17, SRIA16, SRIA15, SRIA14, SRIA13, SRIA12, SRIA11, SRIA10, SRIA9, SRIA8, SRIA7, SRIA6, SRIA5, SRIA4, SRIA3, SRIA2, SRIA1, SRIA0,
    input SRIB17, SRIB16, SRIB15, SRIB14, SRIB13, SRIB12, SRIB11, SRIB10, SRIB9, SRIB8, SRIB7, SRIB6, SRIB5, SRIB4, SRIB3, SRIB2, SRIB1, SRIB0,
    output SROA17, SROA16, SROA15, SROA14, SROA13, SROA12, SROA11, SROA10, SROA9, SROA8, SROA7, SROA6, SROA5, SROA4, SROA3, SROA2, SROA1, SROA0,
    output SROB17, SROB16, SROB15, SROB14, SROB13, SROB12, SROB11, SROB10, SROB9, SROB8, SROB7, SROB6, SROB5, SROB4, SROB3, SROB2, SROB1, SROB0,
    output ROA17, ROA16, ROA15, ROA14, ROA13, ROA12, ROA11, ROA10, ROA9, ROA8, ROA7, ROA6, ROA5, ROA4, ROA3, ROA2, ROA1, ROA0,
    output ROB17, ROB16, ROB15, ROB14, ROB13, ROB12, ROB11, ROB10, ROB9, ROB8, ROB7, ROB6, ROB5, ROB4, ROB3, ROB2, ROB1, ROB0,
    output ROC17, ROC16, ROC15, ROC14, ROC13, ROC12, ROC11, ROC10, ROC9, ROC8, ROC7, ROC6, ROC5, ROC4, ROC3, ROC2, ROC1, ROC0,
    output P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18,
    output P17, P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0,
    output SIGNEDP
);
    parameter REG_INPUTA_CLK = "NONE", REG_INPUTA_CE = "CE0", REG_INPUTA_RST = "RST0";
    parameter REG_INPUTB_CLK = "NONE", REG_INPUTB_CE = "CE0", REG_INPUTB_RST = "RST0";
    parameter REG_INPUTC_CLK = "NONE", REG_INPUTC_CE = "CE0", REG_INPUTC_RST = "RST0";
    parameter REG_PIPELINE_CLK = "NONE", REG_PIPELINE_CE = "CE0", REG_PIPELINE_RST = "RST0";
    parameter REG_OUTPUT_CLK = "NONE", REG_OUTPUT_CE = "CE0", REG_OUTPUT_RST = "RST0";
    parameter CLK0_DIV = "ENABLED", CLK1_DIV = "ENABLED", CLK2_DIV = "ENABLED", CLK3_DIV = "ENABLED";
    parameter HIGHSPEED_CLK = "NONE", GSR = "ENABLED", RESETMODE = "SYNC", CAS_MATCH_REG = "FALSE";
    parameter MULT_BYPASS = "DISABLED", SOURCEB_MODE = "B_SHIFT";

    wire [17:0] a = {A17, A16, A15, A14, A13, A12, A11, A10, A9, A8, A7, A6, A5, A4, A3, A2, A1, A0};
    wire [17:0] b = {B17, B16, B15, B14, B13, B12, B11, B10, B9, B8, B7, B6, B5, B4, B3, B2, B1, B0};
    reg [18:0] held_a = 0, held_b = 0;
    reg [35:0] held_p = 0;
    wire signed [18:0] factor_a = REG_INPUTA_CLK == "NONE" ? {SIGNEDA & A17, a} : held_a;
    wire signed [18:0] factor_b = REG_INPUTB_CLK == "NONE" ? {SIGNEDB & B17, b} : held_b;
    wire signed [37:0] product = factor_a * factor_b;
    always @(posedge CLK0) begin
        if (CE0) held_a <= RST0 ? 0 : {SIGNEDA & A17, a};
        if (CE0) held_b <= RST0 ? 0 : {SIGNEDB & B17, b};
        if (CE0) held_p <= RST0 ? 0 : product[35:0];
    end
    assign {P35, P34, P33, P32, P31, P30, P29, P28, P27, P26, P25, P24, P23, P22, P21, P20, P19, P18,
        P17, P16, P15, P14, P13, P12, P11, P10, P9, P8, P7, P6, P5, P4, P3, P2, P1, P0} = REG_OUTPUT_CLK == "NONE" ? product[35:0] : held_p;

    initial if (REG_PIPELINE_CLK != "NONE" || REG_INPUTA_CLK == "CLK1" || REG_INPUTB_CLK == "CLK1"
                || REG_OUTPUT_CLK == "CLK1") begin
        $display("MULT18X18D: clocks other than CLK0 and a register inside have no model");
        $stop;
    end
endmodule
